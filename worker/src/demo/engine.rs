//! Finding the Temporal CLI, with a progress bar while it is fetched.

use crate::engine::binary::{Binary, Place, Progress, Search};
use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Finds it on this machine, or fetches it.
///
/// # Errors
/// What was tried, and how to get it.
pub(super) async fn find() -> anyhow::Result<Binary> {
    let bar = ProgressBar::new(0).with_style(style("{spinner} {msg}"));
    let said = Mutex::new(None::<Instant>);
    let found = Search::from_env()
        .find(&|progress| {
            let Some(text) = words(progress) else { return };
            if let Progress::Downloading { bytes, total: Some(total), .. } = progress {
                bar.set_style(style("{msg} {wide_bar:.green} {bytes}/{total_bytes} {eta}"));
                bar.set_length(total);
                bar.set_position(bytes);
            }
            bar.set_message(text.clone());
            bar.tick();
            if bar.is_hidden() {
                let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                if said.is_none_or(|at| at.elapsed() >= LINE_EVERY) {
                    *said = Some(Instant::now());
                    // A progress that nobody can read stops nothing.
                    let _ = output::say(&line(&text, progress));
                }
            }
        })
        .await;
    bar.finish_and_clear();
    Ok(found?)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// What is going on; looking at what is on this machine takes no time worth a word.
fn words(progress: Progress) -> Option<String> {
    Some(match progress {
        Progress::Trying(Place::Variable | Place::Path | Place::Cache) => return None,
        Progress::Trying(place) => format!("asking {place} for the Temporal CLI"),
        Progress::Waiting => "another digestd is fetching the Temporal CLI; waiting".to_owned(),
        Progress::Downloading { from, .. } => format!("fetching the Temporal CLI from {from}"),
        Progress::Unpacking => "unpacking the Temporal CLI".to_owned(),
    })
}

fn line(text: &str, progress: Progress) -> String {
    const MEGABYTE: u64 = 1_000_000;
    match progress {
        Progress::Downloading { bytes, total: Some(total), .. } => {
            format!("{text}: {} of {} MB", bytes / MEGABYTE, total.div_ceil(MEGABYTE))
        }
        Progress::Downloading { bytes, .. } if bytes > 0 => {
            format!("{text}: {} MB", bytes / MEGABYTE)
        }
        _ => text.to_owned(),
    }
}
