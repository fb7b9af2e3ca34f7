package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/servertest/smtp"
)

// With the settings of a mail server, a node sends alerts and invitations. The password comes
// from a file. The link in the e-mail and the one in the response both work until one of them
// is used.
func TestMail(t *testing.T) {
	t.Parallel()
	post := smtp.Start(t, "none")
	post.User, post.Password = "headgate", "the-password"
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte("the-password\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := freeAddr(t)
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_ADDR": addr, "HEADGATE_PUBLIC_URL": "http://" + addr,
		"HEADGATE_SMTP_ADDR": post.Addr, "HEADGATE_SMTP_FROM": "Headgate <limits@example.com>", "HEADGATE_SMTP_TLS": "none",
		"HEADGATE_SMTP_USER": "headgate", "HEADGATE_SMTP_PASSWORD_FILE": secret,
	})
	made := call(t, bootstrap, "POST", node.origin+"/v1/alert-channels", `{"name": "mail", "kind": "email", "url": "mailto:ops@example.org"}`).want(t, 201)
	var channel struct{ Channel struct{ ID string } }
	if err := json.Unmarshal([]byte(made.body), &channel); err != nil {
		t.Fatal(err)
	}
	call(t, bootstrap, "POST", node.origin+"/v1/alert-channels/"+channel.Channel.ID+"/test", "").want(t, 202)
	eventually(t, "the test message arrives", func() bool { list, _ := post.Mails(); return len(list) == 1 })

	invited := call(t, bootstrap, "POST", node.origin+"/v1/people", `{"email": "ann@example.org", "role": "viewer", "send_email": true}`).want(t, 201)
	var issued struct{ Token string }
	if err := json.Unmarshal([]byte(invited.body), &issued); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the invitation arrives", func() bool { list, _ := post.Mails(); return len(list) == 2 })
	list, _ := post.Mails()
	text := strings.ReplaceAll(list[1].Data, "=\r\n", "") // quoted-printable
	link := regexp.MustCompile(regexp.QuoteMeta("http://"+addr) + `/invite/(\S+)`).FindStringSubmatch(text)
	if list[1].To != "ann@example.org" || link == nil || link[1] == issued.Token {
		t.Fatalf("%+v", list[1])
	}
	page := func(token string, want int) {
		t.Helper()
		if a := call(t, "", "GET", node.origin+"/invite/"+token, ""); a.status != want {
			t.Errorf("the page of a link: %d, want %d", a.status, want)
		}
	}
	page(link[1], http.StatusOK)
	page(issued.Token, http.StatusOK)
	var log answer
	eventually(t, "the log has the invitation", func() bool {
		log = call(t, bootstrap, "GET", node.origin+"/v1/alert-deliveries?status=delivered", "").want(t, 200)
		return strings.Contains(log.body, `"event":"invitation"`)
	})
	if strings.Contains(log.body, link[1]) {
		t.Error(log.body)
	}
	// An address gets at most three of these e-mails per hour.
	for _, want := range []int{201, 201, 409} {
		call(t, bootstrap, "POST", node.origin+"/v1/people", `{"email": "ann@example.org", "role": "viewer", "send_email": true}`).want(t, want)
	}
}

// Without a mail server, an invitation cannot be e-mailed. The error says why.
func TestNoMail(t *testing.T) {
	t.Parallel()
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap})
	a := call(t, bootstrap, "POST", node.origin+"/v1/people", `{"email": "ann@example.org", "role": "viewer", "send_email": true}`).want(t, 422)
	if !strings.Contains(a.body, "HEADGATE_SMTP_ADDR") || !strings.Contains(a.body, "/send_email") {
		t.Error(a.body)
	}
}
