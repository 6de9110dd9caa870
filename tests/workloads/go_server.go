// A net/http server and its client, another process: go_server [REQUESTS] [CONNECTIONS]
//
// The truth has one line per request that app.ServeHTTP handled; ID is a number from 1, and BEFORE and AFTER are not
// known. Every 16th request waits for a lock that another holds, every 10th for a timer, some need deep stacks. Those
// that panic, which net/http recovers from, are only in the note `panics`.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	_ "unsafe"
)

//go:linkname nanotime runtime.nanotime
func nanotime() int64

type served struct{ id, enter, leave int64 }

type app struct {
	lock  sync.Mutex
	logs  sync.Mutex
	items []served
	count int64
}

var sink uint64

//go:noinline
func work(rounds int) {
	s := uint64(1)
	for i := 0; i < rounds; i++ {
		s = s*2862933555777941757 + uint64(i)
	}
	atomic.AddUint64(&sink, s)
}

//go:noinline
func deep(depth int) byte {
	var frame [1024]byte
	frame[depth%1024] = byte(depth)
	if depth == 0 {
		runtime.Gosched()
		return frame[0]
	}
	return deep(depth-1) + frame[(depth*7)%1024]
}

// The probed function.
func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	it := served{enter: nanotime()}
	it.id = atomic.AddInt64(&a.count, 1)
	work(10000)
	switch {
	case r.URL.Path == "/panic":
		panic(http.ErrAbortHandler)
	case it.id%16 == 0:
		a.lock.Lock()
		time.Sleep(time.Millisecond)
		a.lock.Unlock()
	case it.id%10 == 0:
		time.Sleep(500 * time.Microsecond)
	case it.id%7 == 0:
		deep(200)
	}
	io.WriteString(w, "done\n")
	a.logs.Lock()
	at := len(a.items)
	a.items = append(a.items, it)
	a.logs.Unlock()
	work(5000)
	a.items[at].leave = nanotime()
}

func client(address string, requests, connections int) {
	transport := &http.Transport{MaxIdleConnsPerHost: connections}
	var done sync.WaitGroup
	for n := 0; n < connections; n++ {
		done.Add(1)
		go func(n int) {
			defer done.Done()
			for i := n; i < requests; i += connections {
				path := "/"
				if i%50 == 49 {
					path = "/panic"
				}
				response, err := (&http.Client{Transport: transport}).Get("http://" + address + path)
				if err != nil {
					continue
				}
				io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		}(n)
	}
	done.Wait()
}

func argument(n, otherwise int) int {
	if len(os.Args) > n {
		otherwise, _ = strconv.Atoi(os.Args[n])
	}
	return otherwise
}

func main() {
	requests, connections := argument(1, 2000), argument(2, 16)
	runtime.GOMAXPROCS(4)
	if address := os.Getenv("GO_SERVER"); address != "" {
		client(address, requests, connections)
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	// No item moves in memory while one is handled.
	a := &app{items: make([]served, 0, requests)}
	go http.Serve(listener, a)
	command := exec.Command(os.Args[0], os.Args[1:]...)
	command.Env = append(os.Environ(), "GO_SERVER="+listener.Addr().String())
	if err := command.Run(); err != nil {
		log.Fatal(err)
	}
	// The last handler returns after its client has the answer.
	time.Sleep(50 * time.Millisecond)
	truth := os.Stdout
	if path := os.Getenv("TRUTH_FILE"); path != "" {
		truth, _ = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	}
	for _, it := range a.items {
		fmt.Fprintln(truth, "item", it.id, os.Getpid(), 0, 0, it.enter, it.leave, 0)
	}
	fmt.Fprintln(truth, "note panics", int(a.count)-len(a.items))
	truth.Close()
}
