// A net/http server with one planted limit: server ADDRESS PLANT LIMIT.
package main

import (
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var kept [][]byte
var sink float64
var read atomic.Uint32

func spin(of time.Duration) {
	for until := time.Now().Add(of); time.Now().Before(until); {
		sink *= 1.0000001
	}
}

func main() {
	plant := os.Args[2]
	limit, _ := strconv.Atoi(os.Args[3])
	transport := http.DefaultTransport.(*http.Transport)
	transport.MaxIdleConnsPerHost = 100
	if plant == "connections" {
		transport.MaxConnsPerHost = limit
		plant = "proxy"
	}
	slots := make(chan struct{}, limit)
	var lock sync.Mutex
	var journal *os.File
	if plant == "fsync" {
		journal, _ = os.CreateTemp("", "journal")
		os.Remove(journal.Name())
	}
	var pages []byte
	if plant == "pages" {
		data, _ := os.CreateTemp("", "pages")
		os.Remove(data.Name())
		for i := 0; i < 192; i++ {
			data.Write(make([]byte, 1<<20))
		}
		data.Sync()
		pages, _ = syscall.Mmap(int(data.Fd()), 0, 192<<20, syscall.PROT_READ, syscall.MAP_SHARED)
		syscall.Madvise(pages, syscall.MADV_RANDOM)
	}
	work := map[string]func(){
		"none":      func() {},
		"sleep":     func() { time.Sleep(20 * time.Millisecond) },
		"cpu":       func() { spin(500 * time.Microsecond) },
		"semaphore": func() { slots <- struct{}{}; time.Sleep(20 * time.Millisecond); <-slots },
		"lock":      func() { lock.Lock(); time.Sleep(time.Millisecond); lock.Unlock() },
		"garbage": func() {
			var list [][]byte
			for i := 0; i < 20000; i++ {
				list = append(list, make([]byte, 64))
			}
			lock.Lock()
			kept = append(kept, list...)
			if len(kept) > 4000000 {
				kept = kept[:0]
			}
			lock.Unlock()
		},
		"proxy": func() {
			if got, err := http.Get(os.Getenv("BACKEND")); err == nil {
				io.Copy(io.Discard, got.Body)
				got.Body.Close()
			}
		},
		"pages": func() {
			for i := 0; i < limit; i++ {
				read.Add(uint32(pages[rand.Intn(len(pages))]))
			}
		},
		"fsync": func() {
			lock.Lock()
			journal.Write(make([]byte, 4096))
			journal.Sync()
			lock.Unlock()
		},
	}[plant]
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
		work()
		fmt.Fprintln(answer, "ok")
	})
	fmt.Println(http.ListenAndServe(os.Args[1], nil))
}
