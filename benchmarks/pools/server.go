// Requests wait, first come first served, for one of a number of goroutines, which sleeps for a random time: server
// PORT THREADS SERVICE MEAN_US, where SERVICE is fixed, exponential or heavy.
package main

import (
	"fmt"
	"math"
	"math/rand"
	"net/http"
	"os"
	"strconv"
	"time"
)

const heavySigma = 1.27 // squared coefficient of variation 4

func main() {
	threads, _ := strconv.Atoi(os.Args[2])
	mean, _ := strconv.ParseFloat(os.Args[4], 64)
	takes := map[string]func() float64{
		"fixed":       func() float64 { return 1 },
		"exponential": rand.ExpFloat64,
		"heavy":       func() float64 { return math.Exp(heavySigma*rand.NormFloat64() - heavySigma*heavySigma/2) },
	}[os.Args[3]]
	waiting := make(chan chan struct{}, 100000)
	for i := 0; i < threads; i++ {
		go func() {
			for done := range waiting {
				time.Sleep(time.Duration(takes() * mean * 1000))
				close(done)
			}
		}()
	}
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
		done := make(chan struct{})
		waiting <- done
		<-done
		fmt.Fprintln(answer, "ok")
	})
	fmt.Println(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
