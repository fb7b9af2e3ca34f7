module github.com/headgate/headgate/deploy/recipes

go 1.26.0
