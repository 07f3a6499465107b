// Clients on franz-go that tests start: a verb, and its arguments. They end when their input does.
package main

import (
	"io"
	"os"
	"sync/atomic"
)

var inputEnded atomic.Bool

func main() {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		inputEnded.Store(true)
	}()
	verbs := map[string]func([]string){"member": member, "sender": sender, "copier": copier, "share-member": shareMember}
	verbs[os.Args[1]](os.Args[2:])
}
