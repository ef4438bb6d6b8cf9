// A server on fasthttp, which reads and answers by itself, with one planted limit: server ADDRESS PLANT LIMIT.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

var sink float64

func main() {
	plant := os.Args[2]
	limit, _ := strconv.Atoi(os.Args[3])
	slots := make(chan struct{}, limit)
	var lock sync.Mutex
	work := map[string]func(){
		"sleep":     func() { time.Sleep(20 * time.Millisecond) },
		"semaphore": func() { slots <- struct{}{}; time.Sleep(20 * time.Millisecond); <-slots },
		"lock":      func() { lock.Lock(); time.Sleep(5 * time.Millisecond); lock.Unlock() },
		"cpu": func() {
			for until := time.Now().Add(500 * time.Microsecond); time.Now().Before(until); {
				sink *= 1.0000001
			}
		},
	}[plant]
	fmt.Println(fasthttp.ListenAndServe(os.Args[1], func(request *fasthttp.RequestCtx) {
		work()
		request.SetBodyString("ok\n")
	}))
}
