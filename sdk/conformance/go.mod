module github.com/headgate/headgate/sdk/conformance

go 1.26.0
