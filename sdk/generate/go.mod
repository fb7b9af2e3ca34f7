module github.com/headgate/headgate/sdk/generate

go 1.26.0

require go.yaml.in/yaml/v3 v3.0.4
