// Package requests has what the pages about traffic and about decisions share: the
// names that filters suggest, retry times, the sentence of a denial, links to the
// forms about a key, and commands that send a check. It has no pages.
package requests
