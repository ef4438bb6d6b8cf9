// What docs/go-servers.md starts: a net/http server whose requests each take a connection of a pool for 20 ms. The pool
// is that of database/sql; its database is a stand-in.
package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"
)

type database struct{}
type connection struct{}

func (database) Open(string) (driver.Conn, error) { return connection{}, nil }

func (connection) Prepare(string) (driver.Stmt, error) { return nil, errors.New("no statements") }
func (connection) Begin() (driver.Tx, error)           { return nil, errors.New("no transactions") }
func (connection) Close() error                        { return nil }

func (connection) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	time.Sleep(20 * time.Millisecond)
	return driver.ResultNoRows, nil
}

func main() {
	port := flag.Int("port", 8080, "where to listen")
	connections := flag.Int("db-conns", 4, "connections to the database at most")
	flag.Parse()
	collector := debug.SetGCPercent(100)
	debug.SetGCPercent(collector)
	fmt.Printf("procs=%d gc=%d memory=%d\n", runtime.GOMAXPROCS(0), collector, debug.SetMemoryLimit(-1))

	sql.Register("stand-in", database{})
	pool, err := sql.Open("stand-in", "")
	if err != nil {
		panic(err)
	}
	pool.SetMaxOpenConns(*connections)
	pool.SetMaxIdleConns(*connections)
	http.HandleFunc("/", func(answer http.ResponseWriter, asked *http.Request) {
		if _, err := pool.ExecContext(asked.Context(), "wait"); err != nil {
			http.Error(answer, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(answer, "ok")
	})
	fmt.Println(http.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", *port), nil))
}
