module github.com/headgate/headgate/deploy/proxytest

go 1.26.0
