//go:build !race

package enforcement_test

const raced = false
