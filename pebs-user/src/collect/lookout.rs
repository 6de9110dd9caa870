//! One thread that looks at the rings of all patient recordings of this process, so that those that drain them can sleep.
//!
//! A thread that drains a recording's rings wakes up either rarely, or as soon as one of them fills up: for many recordings that
//! have little to do this costs hardly more than for one. The look itself reads memory that is mapped, without a system call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::{self, Thread};
use std::time::Duration;

use crate::collect::privileges;

/// Between two looks: in that time the rest of a ring must not fill up.
const LOOK: Duration = Duration::from_millis(16);

/// A buffer whose filling wakes its thread.
pub(crate) trait Filling: Send {
    /// Whether it should be woken.
    fn is_filling(&self) -> bool;
}

/// A thread, and what it is woken for.
struct Sleeper {
    watched: Weak<Mutex<dyn Filling>>,
    thread: Thread,
}

#[derive(Default)]
struct Watch {
    sleepers: Vec<Sleeper>,
    /// Whether there is a thread that looks.
    runs: bool,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch {
    sleepers: Vec::new(),
    runs: false,
});

fn watch() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calling thread is woken while this exists.
pub(crate) struct Watched(Weak<Mutex<dyn Filling>>);

impl Watched {
    /// Wakes the calling thread, which sleeps by [`thread::park_timeout`], when this fills up. It is looked at while nobody
    /// locks it. `None`: there is no thread for that.
    pub(crate) fn begin<T: Filling + 'static>(watched: &Arc<Mutex<T>>) -> Option<Self> {
        let watched: Arc<Mutex<dyn Filling>> = Arc::<Mutex<T>>::clone(watched);
        let watched = Arc::downgrade(&watched);
        let mut watch = watch();
        if !watch.runs {
            let looks = thread::Builder::new().name("lookout".to_owned());
            watch.runs = looks.spawn(look).is_ok();
        }
        watch.sleepers.push(Sleeper {
            watched: Weak::clone(&watched),
            thread: thread::current(),
        });
        watch.runs.then_some(Self(watched))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        watch()
            .sleepers
            .retain(|it| !Weak::ptr_eq(&it.watched, &self.0));
    }
}

/// Looks as long as somebody sleeps.
fn look() {
    privileges::give_up_on_this_thread();
    loop {
        {
            let mut watch = watch();
            if watch.sleepers.is_empty() {
                watch.runs = false;
                return;
            }
            for sleeper in &watch.sleepers {
                let Some(watched) = sleeper.watched.upgrade() else {
                    continue;
                };
                let is_filling = match watched.try_lock() {
                    Ok(it) => it.is_filling(),
                    // It is awake.
                    Err(TryLockError::WouldBlock) => false,
                    Err(TryLockError::Poisoned(_)) => true,
                };
                if is_filling {
                    sleeper.thread.unpark();
                }
            }
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    struct Level(u32);

    impl Filling for Level {
        fn is_filling(&self) -> bool {
            self.0 > 10
        }
    }

    /// A thread sleeps as long as nothing fills up, and not much longer.
    #[test]
    fn woken() {
        const LONG: Duration = Duration::from_secs(20);
        let level = Arc::new(Mutex::new(Level(0)));
        let other = Arc::clone(&level);
        let sleeper = thread::spawn(move || {
            let _watched = Watched::begin(&other).unwrap();
            let begin = Instant::now();
            while other.lock().unwrap().0 <= 10 && begin.elapsed() < LONG {
                thread::park_timeout(LONG);
            }
            begin.elapsed()
        });
        for n in 1..=11 {
            thread::sleep(LOOK);
            level.lock().unwrap().0 = n;
        }
        let slept = sleeper.join().unwrap();
        assert!(slept >= 11 * LOOK && slept < LONG, "{slept:?}");
    }
}
