// The 9P2000 servers of others that commands.sh puts our client to, pinned:
//   - export9p, built as it is: go build github.com/knusbaum/go9p/cmd/export9p
//   - hosttree (main.go): a directory behind the library 9fans.net/go/plan9/srv9p, which has no such program of its own
module ninefold.example/judges/hosttree

go 1.23.0

require (
	9fans.net/go v0.0.8-0.20250307142834-96bdba94b63f
	github.com/knusbaum/go9p v1.18.0
)
