// Package composetest tests docker-compose.yml, the Dockerfile and the proxy's configuration
// without a container engine. It is a separate Go module, because the compose loader would be
// the largest dependency of the product.
package composetest
