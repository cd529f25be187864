package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/auth"
)

func tokenCommand() *cobra.Command {
	var m auth.Minting
	cmd := &cobra.Command{
		Use:   "token --key FILE --algorithm NAME --issuer URL --audience NAME --tenant NAME [--grant PATTERN]...",
		Short: "Mint a token for development",
		Long: "Mint a token for development, and print only it. Real tokens come from an identity provider.\n\n" +
			"A --grant is a pattern of dataset names ('team/*', 'team/**'), or JSON with columns:\n" +
			`  --grant '{"datasets": "users/*", "columns": ["age"]}'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := auth.Mint(m)
			if err != nil {
				return err
			}
			if len(m.Grants) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "headrace: without a --grant this token may read nothing, such as --grant 'team/**'")
			}
			fmt.Fprintln(cmd.OutOrStdout(), token)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&m.KeyFile, "key", "", "secret file (HS256) or private key (PEM)")
	f.StringVar(&m.Algorithm, "algorithm", "", "HS256, RS256, ES256 or EdDSA")
	f.StringVar(&m.KeyID, "kid", "", "id of the key, when the config names one")
	f.StringVar(&m.Issuer, "issuer", "", "who signs it: the config's auth.issuer")
	f.StringVar(&m.Audience, "audience", "", "whom it is for: the config's auth.audience")
	f.StringVar(&m.Subject, "sub", "developer", "who will use it")
	f.StringVar(&m.Tenant, "tenant", "", "the tenant")
	f.StringArrayVar(&m.Grants, "grant", nil, "what it may read; repeatable")
	f.DurationVar(&m.TTL, "ttl", time.Hour, "how long it is valid")
	for _, name := range []string{"key", "algorithm", "issuer", "audience", "tenant"} {
		_ = cmd.MarkFlagRequired(name)
	}
	return cmd
}
