// Package requests has what the pages about traffic and about decisions share: names that
// filters suggest, retry times, the sentence about a denial, links to the forms about a key,
// and commands that send a check. It serves no pages.
package requests
