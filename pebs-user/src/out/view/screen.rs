//! The terminal: taken over and given back, keys read, the screen drawn.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::widgets::Paragraph;
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::signal::unix::{SignalKind, signal};

use super::data::Data;
use super::draw;
use super::follow::News;
use super::state::{Key, State};
use crate::present::human::safe;

/// Between two looks for a signal.
const PERIOD: Duration = Duration::from_millis(200);

/// Gives the terminal back when it goes out of scope, by a panic too.
struct TakenOver;

impl Drop for TakenOver {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows a trace, and newer data as they come, until the user quits or a signal asks for the end.
///
/// # Errors
/// If the terminal can't be read or written. It is restored in any case.
pub(crate) fn show(mut data: Data, news: Option<&Receiver<News>>) -> io::Result<()> {
    let is_asked_to_end = watch_signals()?;
    let taken = TakenOver;
    let mut terminal = ratatui::try_init()?;
    let mut state = State::new(&data);
    let is_over = |state: &State| state.is_ended || is_asked_to_end.load(Ordering::Relaxed);
    while !is_over(&state) && !is_gone_after(Duration::ZERO) {
        let mut most = 0;
        terminal.draw(|frame| most = draw::screen(frame, &data, &state))?;
        state.hold(most);
        if !event::poll(Duration::ZERO)? {
            // The change is handled in the next turn.
            is_gone_after(PERIOD);
        } else if let Event::Key(event) = event::read()?
            && let Some(key) = key(event)
        {
            state.press(key, &data);
        }
        match news.map(Receiver::try_recv) {
            Some(Ok(Ok(newer))) => {
                state.renew(&data, &newer);
                data = *newer;
            }
            Some(Ok(Err(why))) => data.remark = Some(safe(&why, usize::MAX)),
            // No news, or the sender is gone.
            Some(Err(_)) | None => {}
        }
    }
    drop(terminal);
    drop(taken);
    Ok(())
}

/// Shows a text, made anew after each such time for the width of the terminal, until the user quits, a signal asks for the end,
/// it can't be made, or it was made that often.
///
/// # Errors
/// If the terminal can't be read or written; within, why the text can't be made. The terminal is restored in any case.
pub(crate) fn show_text<E>(
    every: Duration,
    times: Option<u32>,
    mut make: impl FnMut(usize) -> Result<String, E>,
) -> io::Result<Result<(), E>> {
    let is_asked_to_end = watch_signals()?;
    let taken = TakenOver;
    let mut terminal = ratatui::try_init()?;
    let (mut text, mut made, mut next) = (String::new(), 0, Instant::now());
    let mut result = Ok(());
    while !is_asked_to_end.load(Ordering::Relaxed) && !is_gone_after(Duration::ZERO) {
        if next <= Instant::now() {
            if times == Some(made) {
                break;
            }
            match make(terminal.size()?.width.into()) {
                Ok(new) => text = new,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
            made += 1;
            next = Instant::now() + every;
        }
        terminal.draw(|frame| frame.render_widget(Paragraph::new(&*text), frame.area()))?;
        if !event::poll(Duration::ZERO)? {
            let left = next.saturating_duration_since(Instant::now());
            is_gone_after(left.min(PERIOD));
        } else if let Event::Key(event) = event::read()?
            && let Some(Key::Char('q') | Key::Esc | Key::Interrupt) = key(event)
        {
            break;
        }
    }
    drop(terminal);
    drop(taken);
    Ok(result)
}

/// Waits for input for this long, or until a signal; returns whether the terminal's other end is gone. `event::poll`
/// would then read forever.
fn is_gone_after(most: Duration) -> bool {
    let stdin = io::stdin();
    let mut terminal = [PollFd::new(&stdin, PollFlags::IN)];
    let most = Timespec::try_from(most).unwrap_or_default();
    let looked = rustix::event::poll(&mut terminal, Some(&most));
    let ended = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    looked.is_ok() && terminal[0].revents().intersects(ended)
}

/// A flag that a signal for the end sets. The terminal's own Ctrl-C is a key.
fn watch_signals() -> io::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let entered = runtime.enter();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    drop(entered);
    let is_asked = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_asked);
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                    _ = hangup.recv() => {}
                }
            });
            asked.store(true, Ordering::Relaxed);
        })?;
    Ok(is_asked)
}

/// Meaning of a pressed key; `None` if it has none.
fn key(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    if event.modifiers.contains(KeyModifiers::CONTROL) {
        return (event.code == KeyCode::Char('c')).then_some(Key::Interrupt);
    }
    match event.code {
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down => Some(Key::Down),
        KeyCode::Left => Some(Key::Left),
        KeyCode::Right => Some(Key::Right),
        KeyCode::PageUp => Some(Key::PageUp),
        KeyCode::PageDown => Some(Key::PageDown),
        KeyCode::Home => Some(Key::Home),
        KeyCode::End => Some(Key::End),
        KeyCode::Enter => Some(Key::Enter),
        KeyCode::Esc => Some(Key::Esc),
        KeyCode::Backspace => Some(Key::Backspace),
        KeyCode::Char(c) => Some(Key::Char(c)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ctrl-C exits from any screen, other keys with Ctrl have no meaning, and a key counts once.
    #[test]
    fn keys() {
        let ctrl = |c| key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL));
        assert_eq!([ctrl('c'), ctrl('q')], [Some(Key::Interrupt), None]);
        let plain = |code| key(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(plain(KeyCode::Char('q')), Some(Key::Char('q')));
        assert_eq!(plain(KeyCode::Esc), Some(Key::Esc));
        assert_eq!(plain(KeyCode::F(1)), None);
        let release =
            KeyEvent::new_with_kind(KeyCode::Enter, KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(key(release), None);
    }
}
