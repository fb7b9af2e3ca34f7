package web

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/web/views"
)

// Some secrets, such as a new API key, are shown once. The POST that creates a secret stores it in
// a cookie, and redirects to the page that shows it. If the visitor reloads this page, only the GET
// is repeated, so no second secret is created. Any node can show the page. Neither the database nor
// an address contains the secret.

// showOnceFor is how long after the POST the page with the secret can be opened.
const showOnceFor = 5 * time.Minute

// A sealedOnce is the encrypted content of the cookie.
type sealedOnce struct {
	Until time.Time
	What  json.RawMessage
}

func (w *Shell) onceCookie(r *http.Request) string {
	if w.HTTPS(r) {
		return "__Secure-headgate-once"
	}
	return "headgate-once"
}

// onceCipher returns a cipher whose key is derived from the token of the visitor's session. Only
// this session can decrypt the cookie, because the server stores only a hash of the token.
func (w *Shell) onceCipher(r *http.Request) (cipher.AEAD, error) {
	token, _ := w.token(r)
	return cipherFor(token)
}

func cipherFor(token string) (cipher.AEAD, error) {
	mac := hmac.New(sha256.New, []byte(token))
	_, _ = mac.Write([]byte("shown once"))
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// ShowOnce stores the value of what in an encrypted cookie, and redirects to the page that
// shows it once. The route of this page must be base + "/:once", and its handler must call
// ShownOnce.
func (w *Shell) ShowOnce(c echo.Context, base string, what any) error {
	token, _ := w.token(c.Request())
	return w.ShowOnceIn(c, token, base, what)
}

// ShowOnceIn does the work of ShowOnce for a session that this response starts. token is the token
// of this session; the request does not have it yet.
func (w *Shell) ShowOnceIn(c echo.Context, token, base string, what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	if text, err = json.Marshal(sealedOnce{Until: w.Now().Add(showOnceFor), What: text}); err != nil {
		return err
	}
	box, err := cipherFor(token)
	if err != nil {
		return err
	}
	path, nonce := base+"/"+audit.NewID(), make([]byte, box.NonceSize())
	_, _ = rand.Read(nonce) // crypto/rand returns no error
	w.setOnceCookie(c, path, base64.RawURLEncoding.EncodeToString(box.Seal(nonce, nonce, text, []byte(path))), int(showOnceFor/time.Second))
	return c.Redirect(http.StatusSeeOther, path)
}

// ShownOnce decrypts the value that ShowOnce stored for this page, and deletes the cookie. what
// points to the variable that gets the value. ok is false if the page was already shown, if too
// much time has passed, or if the cookie belongs to another session.
func (w *Shell) ShownOnce(c echo.Context, what any) (ok bool) {
	path := c.Request().URL.Path
	cookie, err := c.Request().Cookie(w.onceCookie(c.Request()))
	if err != nil {
		return false
	}
	w.setOnceCookie(c, path, "", -1)
	sealed, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return false
	}
	box, err := w.onceCipher(c.Request())
	if err != nil || len(sealed) < box.NonceSize() {
		return false
	}
	text, err := box.Open(nil, sealed[:box.NonceSize()], sealed[box.NonceSize():], []byte(path))
	if err != nil {
		return false
	}
	var s sealedOnce
	return json.Unmarshal(text, &s) == nil && w.Now().Before(s.Until) && json.Unmarshal(s.What, what) == nil
}

func (w *Shell) setOnceCookie(c echo.Context, path, value string, maxAge int) {
	c.SetCookie(&http.Cookie{
		Name: w.onceCookie(c.Request()), Value: value, Path: path, MaxAge: maxAge,
		HttpOnly: true, Secure: w.HTTPS(c.Request()), SameSite: http.SameSiteStrictMode,
	})
}

// GoneOnce renders the page that appears in place of a secret that was already shown. text says
// what the visitor can do.
func (w *Shell) GoneOnce(c echo.Context, text string, back views.Link) error {
	const title = "This page was shown once"
	return w.Render(c, http.StatusGone, views.ErrorPage(w.Page(c, title), views.Error{
		Status: "410", Title: title, Text: text, Back: back.Text, BackURL: back.URL,
	}))
}
