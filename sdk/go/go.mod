module github.com/headgate/headgate/sdk/go

go 1.24.0
