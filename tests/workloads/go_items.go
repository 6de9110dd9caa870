// Items of goroutines that change threads and stacks: go_items [KIND] [GOROUTINES] [ITEMS]
//
// KIND is one of the keys of kinds, or all of them in turn. Each goroutine does so many items, on four threads. The
// truth of an item is complete; its CPU time is in lines `call cpu ID 0 ENTER LEAVE`, on the thread's CPU clock. Items
// that never return (KINDS panic, exit) have only a line `begin`.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"
	_ "unsafe"
)

//go:linkname nanotime runtime.nanotime
func nanotime() int64

const threadCPU = 3

type item struct {
	id, kind                    int
	before, enter, leave, after int64
	cpu                         [][2]int64
	ended                       bool
}

var sinks [256]uint64

// The thread's CPU time. It does not call the scheduler.
func cpuTime() int64 {
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

//go:noinline
func work(it *item, rounds int) {
	begin := cpuTime()
	s := uint64(it.id)
	for i := 0; i < rounds; i++ {
		s = s*2862933555777941757 + uint64(i)
	}
	sinks[it.id%len(sinks)] += s
	it.cpu = append(it.cpu, [2]int64{begin, cpuTime()})
}

// Fills a stack of half a megabyte, which moves several times, and gives up the thread at its end.
//
//go:noinline
func deep(depth int) byte {
	var frame [1024]byte
	frame[depth%1024] = byte(depth)
	if depth == 0 {
		time.Sleep(50 * time.Microsecond)
		return frame[0]
	}
	return deep(depth-1) + frame[(depth*7)%1024]
}

type echo struct{ to, from chan int }

var kinds = []struct {
	name string
	do   func(*item, echo)
}{
	{"plain", func(it *item, _ echo) {}},
	{"yield", func(it *item, _ echo) { runtime.Gosched() }},
	{"sleep", func(it *item, _ echo) { time.Sleep(200 * time.Microsecond) }},
	{"channel", func(it *item, e echo) {
		for i := 0; i < 3; i++ {
			e.to <- i
			<-e.from
		}
	}},
	{"deep", func(it *item, _ echo) { deep(500) }},
	{"syscall", func(it *item, _ echo) {
		t := syscall.Timespec{Nsec: 200_000}
		syscall.Nanosleep(&t, nil)
	}},
	{"inner", func(it *item, e echo) { helper(it, e) }},
	{"shrink", func(it *item, _ echo) { runtime.GC() }},
	{"panic", func(it *item, _ echo) { panic(it) }},
	{"exit", func(it *item, _ echo) { runtime.Goexit() }},
}

//go:noinline
func helper(it *item, e echo) {
	runtime.Gosched()
	work(it, 2000)
	e.to <- 1
	<-e.from
}

// The probed function.
//
//go:noinline
func Handle(id int, it *item, e echo) int {
	it.enter = nanotime()
	work(it, 20000)
	kinds[it.kind].do(it, e)
	work(it, 5000)
	it.leave = nanotime()
	return id
}

func one(it *item, e echo) {
	defer func() { recover() }()
	it.before = nanotime()
	Handle(it.id, it, e)
	it.after = nanotime()
	it.ended = true
}

func run(items []item, locked bool) {
	if locked {
		runtime.LockOSThread()
	}
	e := echo{make(chan int), make(chan int)}
	go func() {
		for i := range e.to {
			e.from <- i
		}
	}()
	defer close(e.to)
	for n := range items {
		one(&items[n], e)
	}
}

// Runs all items, also those that follow one that ends its goroutine.
func all(items []item, locked bool, done *sync.WaitGroup) {
	for len(items) > 0 {
		over := make(chan bool)
		go func() {
			defer func() { over <- true }()
			run(items, locked)
		}()
		<-over
		for len(items) > 0 && items[0].before != 0 {
			items = items[1:]
		}
	}
	done.Done()
}

func argument(n, otherwise int) int {
	if len(os.Args) > n {
		otherwise, _ = strconv.Atoi(os.Args[n])
	}
	return otherwise
}

func main() {
	only := -1
	for n, kind := range kinds {
		if len(os.Args) > 1 && os.Args[1] == kind.name {
			only = n
		}
	}
	goroutines, each := argument(2, 12), argument(3, 50)
	runtime.GOMAXPROCS(4)
	items := make([][]item, goroutines)
	var done sync.WaitGroup
	for g := range items {
		items[g] = make([]item, each)
		for n := range items[g] {
			it := &items[g][n]
			it.id, it.kind = g*each+n+1, only
			it.cpu = make([][2]int64, 0, 4)
			if only < 0 {
				it.kind = n % len(kinds)
			}
		}
		done.Add(1)
		go all(items[g], g%4 == 3, &done)
	}
	done.Wait()
	truth := os.Stdout
	if path := os.Getenv("TRUTH_FILE"); path != "" {
		truth, _ = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	}
	for _, of := range items {
		for _, it := range of {
			if !it.ended {
				fmt.Fprintln(truth, "begin", it.id, os.Getpid(), 0, it.before)
				continue
			}
			fmt.Fprintln(truth, "item", it.id, os.Getpid(), 0, it.before, it.enter, it.leave, it.after)
			for _, cpu := range it.cpu {
				fmt.Fprintln(truth, "call cpu", it.id, 0, cpu[0], cpu[1])
			}
		}
	}
	truth.Close()
	fmt.Println("items", goroutines*each)
}
