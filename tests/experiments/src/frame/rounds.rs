//! Rounds in turn: what is compared runs one after the other, again and again, so that a change of the machine's speed
//! affects all alike.

use anyhow::Result;

/// Runs each case once a round, the first of which is number 1; results by case.
pub fn rounds<C, T>(
    rounds: usize,
    cases: &[C],
    mut run: impl FnMut(usize, &C) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut results: Vec<Vec<T>> = cases.iter().map(|_| Vec::new()).collect();
    for round in 1..=rounds.max(1) {
        for (case, results) in cases.iter().zip(&mut results) {
            results.push(run(round, case)?);
        }
    }
    Ok(results)
}

/// Runs each case once a round, and something without it between each two: a machine's speed changes within a minute by
/// more than the effect to measure.
pub struct Beside<T> {
    /// By case: each run, with the mean of those without just before and just after it.
    pub cases: Vec<Vec<(f64, T)>>,
    /// The runs without, in order.
    pub without: Vec<f64>,
}

/// Makes such runs; `without` and `with` give what is compared, such as a time.
pub fn beside<C, T>(
    rounds: usize,
    cases: &[C],
    mut without: impl FnMut() -> Result<f64>,
    mut with: impl FnMut(&C) -> Result<T>,
) -> Result<Beside<T>> {
    let mut before = without()?;
    let mut all = vec![before];
    let cases = self::rounds(rounds, cases, |_, case| {
        let result = with(case)?;
        let after = without()?;
        all.push(after);
        let mean = f64::midpoint(before, after);
        before = after;
        Ok((mean, result))
    })?;
    Ok(Beside {
        cases,
        without: all,
    })
}

/// Runs something for each of many on so many threads; results in their order.
pub fn parallel<I: Sync, T: Send>(
    threads: usize,
    all: &[I],
    run: impl Fn(&I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, T)>> {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = all.get(at) else {
                return Ok(done);
            };
            done.push((at, run(one)?));
        }
    };
    let mut done = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let mut done = Vec::new();
        for worker in workers {
            let its = worker.join();
            done.extend(its.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok::<_, anyhow::Error>(done)
    })?;
    done.sort_by_key(|it| it.0);
    Ok(done.into_iter().map(|it| it.1).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases take turns, each between two runs without.
    #[test]
    fn in_turn() {
        let (mut order, mut time) = (Vec::new(), 0.0);
        let without = || {
            time += 1.0;
            Ok(time)
        };
        let with = |case: &char| {
            order.push(*case);
            Ok(*case)
        };
        let found = beside(2, &['a', 'b'], without, with).unwrap();
        assert_eq!(
            found.cases,
            [[(1.5, 'a'), (3.5, 'a')], [(2.5, 'b'), (4.5, 'b')]]
        );
        assert_eq!(found.without, [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(order, ['a', 'b', 'a', 'b']);
    }

    /// Results keep their order, and an error ends all.
    #[test]
    fn on_threads() {
        let all: Vec<u32> = (0..50).collect();
        assert_eq!(parallel(3, &all, |it| Ok(it + 1)).unwrap()[49], 50);
        let found = parallel(2, &all, |it| {
            anyhow::ensure!(*it < 40, "{it}");
            Ok(())
        });
        assert!(found.is_err());
    }
}
