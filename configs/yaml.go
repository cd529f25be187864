package configs

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// yaml reads a file by its syntax tree rather than into a struct, so that every problem is found in one go and knows its
// line. Only text that is no YAML at all is an error here.
func (l *loader) yaml(text []byte) error {
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var syntax yaml.Error
		if errors.As(err, &syntax) && syntax.GetToken() != nil {
			return &InvalidError{[]string{fmt.Sprintf("%s: %s", l.line(syntax.GetToken().Position.Line), syntax.GetMessage())}}
		}
		return &InvalidError{[]string{fmt.Sprintf("%s: %v", l.file, err)}}
	}
	documents := 0
	for _, d := range file.Docs {
		if d.Body == nil || d.Body.Type() == ast.CommentType || d.Body.Type() == ast.CommentGroupType {
			continue
		}
		if documents++; documents > 1 {
			return &InvalidError{[]string{l.at(d.Body) + ": a second document; one is expected"}}
		}
		l.mapping("", "", d.Body)
	}
	return nil
}

func (l *loader) line(n int) string { return fmt.Sprintf("%s:%d", l.file, n) }

func (l *loader) at(n ast.Node) string {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return l.line(t.Position.Line)
	}
	return l.file
}

// mapping reads the keys of one level. The prefix is that of the table ("datasets[]."), shown is for people ("datasets[2].").
func (l *loader) mapping(prefix, shown string, node ast.Node) {
	if node.Type() == ast.NullType {
		return
	}
	for name, v := range l.pairs(shown, node) {
		l.value(prefix+name, shown+name, v)
	}
}

// pairs yields what stands in a mapping, each key once.
func (l *loader) pairs(shown string, node ast.Node) func(yield func(string, *ast.MappingValueNode) bool) {
	return func(yield func(string, *ast.MappingValueNode) bool) {
		m, ok := node.(*ast.MappingNode)
		if !ok {
			l.problemAt(l.at(node), strings.TrimSuffix(shown, "."), "keys with values are expected here, not %s", describe(node))
			return
		}
		seen := map[string]string{}
		for _, v := range m.Values {
			name := keyText(v.Key)
			if first, twice := seen[name]; twice {
				l.problems = append(l.problems, fmt.Sprintf("%s: %s: set twice, first at %s", l.at(v.Key), shown+name, first))
				continue
			}
			seen[name] = l.at(v.Key)
			if !yield(name, v) {
				return
			}
		}
	}
}

// value reads what stands behind one key.
func (l *loader) value(name, shown string, v *ast.MappingValueNode) {
	k, known := find(name)
	where := l.at(v.Key)
	switch {
	case !known && group(name+"."):
		l.mapping(name+".", shown+".", v.Value)
	case !known:
		l.problemAt(where, shown, "unknown key%s", hint(name))
	case v.Value.Type() == ast.NullType: // the key alone, without a value: as if it were not there
	case k.kind == itemList:
		l.list(k, shown, v.Value)
	case k.kind == textList:
		l.texts(k, shown, where, v.Value)
	case k.kind == aSchema && v.Value.Type() == ast.MappingType:
		l.columns(shown, v.Value.(*ast.MappingNode))
	case k.kind == aTable:
		l.table(k, shown, v.Value)
	default:
		text, ok := scalar(v.Value)
		if !ok {
			l.problemAt(where, shown, "a single value is expected, not %s", describe(v.Value))
			return
		}
		l.set(k, shown, where, l.folder, text)
	}
}

func (l *loader) list(k key, shown string, node ast.Node) {
	s, ok := node.(*ast.SequenceNode)
	if !ok {
		l.problemAt(l.at(node), shown, "a list is expected, not %s", describe(node))
		return
	}
	for i, item := range s.Values {
		k.grow(l.config)
		l.defaults(k.name + "[].")
		name := fmt.Sprintf("%s[%d]", shown, i)
		l.where[name] = l.at(item)
		l.mapping(k.name+"[].", name+".", item)
	}
}

// table reads items that have names.
func (l *loader) table(k key, shown string, node ast.Node) {
	for name, v := range l.pairs(shown+".", node) {
		k.entitle(l.config, name)
		l.defaults(k.name + ".*.")
		item := shown + "." + name
		l.where[item] = l.at(v.Key)
		l.mapping(k.name+".*.", item+".", v.Value)
	}
}

// columns reads a schema that is given column by column.
func (l *loader) columns(shown string, m *ast.MappingNode) {
	d, seen := last(l.config.Datasets), map[string]bool{}
	for _, v := range m.Values {
		name := keyText(v.Key)
		text, ok := scalar(v.Value)
		switch {
		case !ok || text == "":
			l.problemAt(l.at(v.Key), shown+"."+name, "a type is expected, such as int64, not %s", describe(v.Value))
		case seen[name]:
			l.problemAt(l.at(v.Key), shown+"."+name, "set twice")
		default:
			seen[name] = true
			d.Columns = append(d.Columns, Column{name, text})
		}
	}
	if len(m.Values) == 0 {
		l.problemAt(l.at(m), shown, "a schema without columns")
	}
}

func (l *loader) texts(k key, shown, where string, node ast.Node) {
	s, ok := node.(*ast.SequenceNode)
	if !ok {
		l.problemAt(where, shown, "a list is expected, not %s", describe(node))
		return
	}
	var list []string
	for _, item := range s.Values {
		text, ok := scalar(item)
		if !ok || text == "" {
			l.problemAt(l.at(item), shown, "a list of texts is expected; one item is %s", describe(item))
			return
		}
		list = append(list, text)
	}
	if !k.served() && len(list) > 0 {
		l.problemAt(where, shown, "is not supported yet")
		return
	}
	l.where[shown] = where
	k.store(l.config, list)
}

// scalar is the text of a single value, whatever type YAML would make of it: our keys know their own types.
func scalar(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func keyText(n ast.MapKeyNode) string {
	if s, ok := n.(*ast.StringNode); ok {
		return s.Value
	}
	return n.GetToken().Value
}

func describe(n ast.Node) string {
	switch n.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "keys with values"
	case ast.SequenceType:
		return "a list"
	case ast.NullType:
		return "nothing"
	case ast.AnchorType, ast.AliasType, ast.TagType:
		return "an anchor, alias or tag"
	}
	if text, ok := scalar(n); ok {
		return fmt.Sprintf("%.40q", text)
	}
	return "this"
}
