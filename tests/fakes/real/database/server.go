// A net/http server that asks PostgreSQL at DATABASE over a pool of connections: server ADDRESS PLANT CONNECTIONS.
package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"strconv"

	_ "github.com/lib/pq"
)

const change = "with changed as (update counter set n = n + 1 returning n) "

var queries = map[string]string{
	"query":   "select pg_sleep(0.02)",
	"row":     change + "select pg_sleep(0.004) from changed",
	"compute": "select count(*) from generate_series(1, 20000)",
}

func main() {
	query := queries[os.Args[2]]
	connections, _ := strconv.Atoi(os.Args[3])
	database, err := sql.Open("postgres", os.Getenv("DATABASE")+"&sslmode=disable")
	if err != nil {
		panic(err)
	}
	database.SetMaxOpenConns(connections)
	database.SetMaxIdleConns(connections)
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
		if _, err := database.Exec(query); err != nil {
			http.Error(answer, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(answer, "ok")
	})
	fmt.Println(http.ListenAndServe(os.Args[1], nil))
}
