// A server for an image with nothing else in it: it serves THREADS requests at once, with 2 ms of CPU each, and listens
// LATE after its start.
package main

import (
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	threads, err := strconv.Atoi(os.Getenv("THREADS"))
	if err != nil {
		threads = 1
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	if os.Getenv("IGNORES") == "TERM" {
		signal.Ignore(syscall.SIGTERM)
	}
	slots := make(chan bool, threads)
	http.HandleFunc("/health", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("/", func(http.ResponseWriter, *http.Request) {
		slots <- true
		for begun := time.Now(); time.Since(begun) < 2*time.Millisecond; {
		}
		<-slots
	})
	late, _ := time.ParseDuration(os.Getenv("LATE"))
	time.Sleep(late)
	panic(http.ListenAndServe(":"+port, nil))
}
