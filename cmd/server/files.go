package main

import (
	"log/slog"
	"os"
)

// warnOfOpenFiles logs a warning for each file with a secret that other users of the machine
// can read.
func (s *serveSettings) warnOfOpenFiles(log *slog.Logger) {
	for _, name := range []string{
		settingName("database-url"), settingName("redis-url"), bootstrapSetting, adminPasswordSetting, oidcSecretSetting,
	} {
		if s.getenv(name) == "" { // a variable with a value overrides its file
			warnOfOpenFile(log, name+"_FILE", s.getenv(name+"_FILE"))
		}
	}
	warnOfOpenFile(log, settingName("tls-key-file"), s.TLSKeyFile)
}

func warnOfOpenFile(log *slog.Logger, setting, file string) {
	if file == "" {
		return
	}
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o077 != 0 {
		log.Warn("other users of this machine may read a file with a secret: chmod 600",
			"setting", setting, "file", file, "mode", info.Mode().Perm().String())
	}
}
