// Items in Go functions that C calls: go_callbacks [ITEMS]
//
// Three threads of C, and a goroutine that calls C, do so many items each. An item gives up its goroutine.
package main

/*
#include <pthread.h>
extern int Handle(int id);
static void *run(void *at) {
	int *range = at;
	for (int id = range[0]; id < range[1]; id++) Handle(id);
	return 0;
}
static void threads(int each) {
	pthread_t threads[3];
	int ranges[3][2];
	for (int n = 0; n < 3; n++) {
		ranges[n][0] = 1 + n * each, ranges[n][1] = 1 + (n + 1) * each;
		pthread_create(&threads[n], 0, run, ranges[n]);
	}
	for (int n = 0; n < 3; n++) pthread_join(threads[n], 0);
}
static void call(int from, int to) {
	int range[2] = {from, to};
	run(range);
}
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
	_ "unsafe"
)

//go:linkname nanotime runtime.nanotime
func nanotime() int64

var times [][2]int64
var sinks [64]uint64

//go:noinline
func work(id C.int) C.int {
	times[id][0] = nanotime()
	s := uint64(id)
	for i := 0; i < 10000; i++ {
		s = s*2862933555777941757 + uint64(i)
	}
	sinks[int(id)%len(sinks)] += s
	runtime.Gosched()
	if id%10 == 0 {
		time.Sleep(100 * time.Microsecond)
	}
	times[id][1] = nanotime()
	return id
}

//export Handle
func Handle(id C.int) C.int { return work(id) }

func main() {
	each := 100
	if len(os.Args) > 1 {
		each, _ = strconv.Atoi(os.Args[1])
	}
	times = make([][2]int64, 4*each+1)
	done := make(chan bool)
	go func() {
		C.call(C.int(3*each+1), C.int(4*each+1))
		done <- true
	}()
	C.threads(C.int(each))
	<-done
	truth := os.Stdout
	if path := os.Getenv("TRUTH_FILE"); path != "" {
		truth, _ = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	}
	for id, it := range times[1:] {
		fmt.Fprintln(truth, "item", id+1, os.Getpid(), 0, 0, it[0], it[1], 0)
	}
	truth.Close()
	fmt.Println("items", 4*each)
}
