// Goroutines that keep the CPUs busy, two to a thread: goroutines [MS] [SHORT]
// Before them SHORT others, each started when the one before has ended.
// Each runs its own function, so that a function identifies the goroutine. Stdout has their number.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

//go:noinline
func first(x uint64, rounds int) uint64 {
	for i := 0; i < rounds; i++ {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

//go:noinline
func second(x uint64, rounds int) uint64 {
	for i := 0; i < rounds; i++ {
		x = x*6364136223846793005 + 1442695040888963409
	}
	return x
}

//go:noinline
func third(x uint64, rounds int) uint64 {
	for i := 0; i < rounds; i++ {
		x = x*6364136223846793005 + 1442695040888963411
	}
	return x
}

//go:noinline
func fourth(x uint64, rounds int) uint64 {
	for i := 0; i < rounds; i++ {
		x = x*6364136223846793005 + 1442695040888963413
	}
	return x
}

func main() {
	length := 300
	if len(os.Args) > 1 {
		length, _ = strconv.Atoi(os.Args[1])
	}
	runtime.GOMAXPROCS(2)
	if len(os.Args) > 2 {
		short, _ := strconv.Atoi(os.Args[2])
		for i := 0; i < short; i++ {
			done := make(chan uint64)
			go func() { done <- first(uint64(i), 2000) }()
			<-done
		}
	}
	until := time.Now().Add(time.Duration(length) * time.Millisecond)
	var all sync.WaitGroup
	work := []func(uint64, int) uint64{first, second, third, fourth}
	for _, f := range work {
		all.Add(1)
		go func(f func(uint64, int) uint64) {
			defer all.Done()
			for x := uint64(1); time.Now().Before(until); {
				x = f(x, 20000)
			}
		}(f)
	}
	all.Wait()
	fmt.Println("goroutines", len(work))
}
