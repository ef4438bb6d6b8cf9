// A net/http server whose requests cost the same work each: server PORT ROUNDS. GOMAXPROCS says on how many CPUs at once.
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
