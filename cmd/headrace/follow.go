package main

import (
	"context"
	"reflect"
	"time"

	"github.com/headrace/headrace/configs"
)

// follow reads the config file again when it changes, until ctx ends. What can change while a gateway runs is the
// cache's policy; the rest is said to take a restart. A file that is no good leaves all as it is. cfg is what runs.
func (a *app) follow(ctx context.Context, file string, cfg configs.Config, read func() (*configs.Config, error)) error {
	tick := time.NewTicker(recheck)
	defer tick.Stop()
	for seen := "new"; ; { // it may have changed since it was read
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		stamp, err := stampOf(file)
		if stamp == seen {
			continue
		}
		seen = stamp
		var next *configs.Config
		if err == nil {
			next, err = read()
		}
		if err != nil {
			a.log.Warn("the changed config is no good; all stays as it is", "file", file, "error", err.Error())
			continue
		}
		if err := a.apply(&cfg, *next); err != nil {
			return err
		}
	}
}

// apply makes what runs as the next config has it, as far as that can be.
func (a *app) apply(cfg *configs.Config, next configs.Config) error {
	if was, policy := cfg.Cache.Policy, next.Cache.Policy; policy != was {
		if err := a.cache.SetPolicy(policy); err != nil {
			return err
		}
		cfg.Cache.Policy = policy
		a.log.Info("the cache's policy has changed; what is kept stays", "policy", policy, "was", was)
	}
	if !reflect.DeepEqual(*cfg, next) {
		a.log.Warn("the config has changed in more than cache.policy: the rest is as it was until the gateway is started again")
	}
	return nil
}
