// A net/http server; each request costs the same work: server PORT ROUNDS. GOMAXPROCS is the number of CPUs used at
// once.
package main

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
)

func main() {
	rounds, _ := strconv.Atoi(os.Args[2])
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
		state := uint64(rounds)
		for i := 0; i < rounds; i++ {
			state = state*6364136223846793005 + 1442695040888963407
		}
		fmt.Fprintln(answer, state)
	})
	fmt.Println(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
