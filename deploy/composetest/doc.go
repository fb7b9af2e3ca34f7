// Package composetest checks docker-compose.yml, the Dockerfile and the proxy's
// configuration without a container engine. It is a module of its own, because
// the compose loader would be the largest dependency of the product.
package composetest
