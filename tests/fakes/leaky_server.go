// A net/http server that keeps something of each request for ever: leaky_server PORT WHAT... .
//
// memory: 64 KiB of each; connections: one that it opens to itself and never closes. Each request also makes garbage of
// 16 KiB, as handlers do.
package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

var (
	lock   sync.Mutex
	kept   [][]byte
	opened []net.Conn
)

func main() {
	port, what := os.Args[1], os.Args[2:]
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		garbage := strings.Repeat(r.URL.Path, 16*1024)
		if slices.Contains(what, "memory") {
			more := make([]byte, 64*1024)
			for at := 0; at < len(more); at += 4096 {
				more[at] = 1
			}
			lock.Lock()
			kept = append(kept, more)
			lock.Unlock()
		}
		if slices.Contains(what, "connections") {
			connection, err := net.Dial("tcp", "127.0.0.1:"+port)
			if err == nil {
				fmt.Fprintf(connection, "GET /quiet HTTP/1.1\r\nHost: localhost\r\n\r\n")
				http.ReadResponse(bufio.NewReader(connection), nil)
				lock.Lock()
				opened = append(opened, connection)
				lock.Unlock()
			}
		}
		time.Sleep(20 * time.Millisecond)
		fmt.Fprintf(w, "ok %d", len(garbage))
	})
	http.HandleFunc("/quiet", func(w http.ResponseWriter, r *http.Request) {})
	panic(http.ListenAndServe("127.0.0.1:"+port, nil))
}
