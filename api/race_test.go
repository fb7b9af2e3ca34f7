//go:build race

package api_test

// raced: the race detector's pools drop what they hold at random.
const raced = true
