package main

import (
	"log/slog"
	"os"
)

// An openSecret is a file with a secret that other users of the machine can read.
type openSecret struct{ setting, file, mode string }

// openSecrets returns those files with secrets that other users of the machine can read.
func (s *serveSettings) openSecrets() (list []openSecret) {
	check := func(setting, file string) {
		if file == "" {
			return
		}
		if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o077 != 0 {
			list = append(list, openSecret{setting, file, info.Mode().Perm().String()})
		}
	}
	for _, name := range readableSecrets {
		if s.getenv(name) == "" { // a variable with a value overrides the file
			check(name+"_FILE", s.getenv(name+"_FILE"))
		}
	}
	check(settingName("tls-key-file"), s.TLSKeyFile)
	if configHasSecrets(s.Config) {
		check(configSetting, s.Config)
	}
	return list
}

// warnOfOpenFiles logs a warning for each file that openSecrets returns.
func (s *serveSettings) warnOfOpenFiles(log *slog.Logger) {
	for _, f := range s.openSecrets() {
		log.Warn("other users of this machine may read a file with a secret: chmod 600", "setting", f.setting, "file", f.file, "mode", f.mode)
	}
}
