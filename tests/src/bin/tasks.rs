//! Tasks on tokio's current thread: `tasks [TASKS]`. Task k yields k times, so that it is polled k + 1 times.
//! All tasks are kept until the end: no address is used twice. Two kinds of futures, so that there are two
//! functions that poll.

use std::hint::black_box;

use tokio::task::yield_now;

fn work(seed: u64) -> u64 {
    (0..20_000).fold(seed, |x, _| {
        black_box(x.wrapping_mul(25_214_903_917).wrapping_add(11))
    })
}

fn main() -> std::io::Result<()> {
    let tasks: u64 = std::env::args()
        .nth(1)
        .and_then(|it| it.parse().ok())
        .unwrap_or(40);
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let sum = runtime.block_on(async move {
        let mut handles = Vec::new();
        for k in 0..tasks {
            handles.push(if k % 2 == 0 {
                tokio::spawn(async move {
                    for _ in 0..k {
                        black_box(work(k));
                        yield_now().await;
                    }
                    k
                })
            } else {
                tokio::spawn(async move {
                    for _ in 0..k {
                        yield_now().await;
                    }
                    black_box(work(k)) | 1
                })
            });
        }
        let mut sum = 0_u64;
        for handle in &mut handles {
            sum = sum.wrapping_add(handle.await.unwrap_or(0));
        }
        sum
    });
    println!("{sum:016x}");
    Ok(())
}
