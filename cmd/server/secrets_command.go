package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/secondfactor"
	"github.com/headgate/headgate/internal/store"
)

// sealerOf returns the Sealer for the values of HEADGATE_SECRETS_KEY and HEADGATE_SECRETS_KEY_OLD.
func sealerOf(key, oldKey string) (secondfactor.Sealer, error) {
	sealer, err := secondfactor.NewSealer(key)
	if err != nil {
		return sealer, fmt.Errorf("%s: %w", secretsKeySetting, err)
	}
	if oldKey == "" {
		return sealer, nil
	}
	old, err := secondfactor.NewSealer(oldKey)
	switch {
	case err != nil:
		return sealer, fmt.Errorf("%s: %w", secretsKeyOldSetting, err)
	case key == "":
		return sealer, fmt.Errorf("%s: needs %s, the key that encrypts now", secretsKeyOldSetting, secretsKeySetting)
	case key == oldKey:
		return sealer, fmt.Errorf("%s: is the same as %s: set it to the former key, or remove it", secretsKeyOldSetting, secretsKeySetting)
	}
	return sealer.WithOld(old), nil
}

// secretsCommand is headgate secrets.
type secretsCommand struct {
	Reencrypt secretsReencrypt `cmd:"" help:"Encrypt the secrets of authenticator apps with HEADGATE_SECRETS_KEY: those of HEADGATE_SECRETS_KEY_OLD, and unencrypted ones."`
}

type secretsReencrypt struct {
	localSettings
	dryRun
}

// A reencryptionRow is the output of headgate secrets reencrypt.
type reencryptionRow struct {
	Reencrypted int `json:"reencrypted"`
	Current     int `json:"current"`
	Unreadable  int `json:"unreadable"`
}

func (s secretsReencrypt) Run(ctx context.Context, p program, t cli.Terminal) error {
	key, err := secretFrom(p.getenv, secretsKeySetting)
	if err != nil {
		return err
	}
	if key == "" {
		return usageError{fmt.Errorf("%s is not set: it has the key that encrypts", secretsKeySetting)}
	}
	oldKey, err := secretFrom(p.getenv, secretsKeyOldSetting)
	if err != nil {
		return err
	}
	sealer, err := sealerOf(key, oldKey)
	if err != nil {
		return usageError{err}
	}
	var done accounts.Reencryption
	err = s.withChange(ctx, p, "secrets reencrypt", s.dryRun, func(ctx context.Context, st *store.Store) error {
		people, err := accounts.NewPeople(st, accounts.PeopleConfig{Limiter: inprocess.New(inprocess.Config{}), Sealer: sealer})
		if err == nil {
			done, err = people.Reencrypt(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	row := reencryptionRow(done)
	s.say(p)
	if err := s.Table(t, row, "", cli.Column{Title: "REENCRYPTED", Path: "reencrypted"}, cli.Column{Title: "CURRENT", Path: "current"},
		cli.Column{Title: "UNREADABLE", Path: "unreadable"}); err != nil {
		return err
	}
	if done.Unreadable > 0 {
		return errors.New("some secrets were encrypted with neither key: set " + secretsKeyOldSetting +
			" to the key that encrypted them, or reset the second factor of their people")
	}
	return nil
}
