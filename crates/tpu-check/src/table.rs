//! The results as a table.

use crate::job::gib;
use crate::report::{Line, Outcome, Report};

const HEAD: [&str; 10] =
    ["job", "args", "temp", "peak", "limit", "copies", "collectives", "code", "CPU s", "RSS"];

/// Sizes in GiB per device, code in MiB of the serialized executable, RSS of the compiler in GiB.
pub(crate) fn render(lines: &[Line]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(lines.iter().map(row));
    let widths: Vec<usize> =
        (0..HEAD.len()).map(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text.push_str(&format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end()));
    }
    for line in lines {
        if let Some(said) = said(&line.outcome) {
            text.push_str(&format!("{}: {said}\n", line.job.name));
        }
        for missed in &line.missed {
            text.push_str(&format!("{}: {missed}\n", line.job.name));
        }
    }
    text
}

fn row(line: &Line) -> [String; HEAD.len()] {
    let (cpu, resident) =
        (format!("{:.1}", line.cost.cpu_seconds), format!("{:.2}", gib(line.cost.peak_resident)));
    let name = line.job.name.clone();
    match &line.outcome {
        Outcome::Compiled(report) => {
            let Report { arguments, temporaries, peak, limit, .. } = **report;
            let [args, temp, peak, limit, copies] =
                [arguments, temporaries, peak, limit, report.entry_copies()]
                    .map(|bytes| format!("{:.2}", gib(bytes)));
            let code = format!("{:.1}", report.serialized as f64 / 1048576.0);
            [name, args, temp, peak, limit, copies, collectives(report), code, cpu, resident]
        }
        other => {
            let none = String::new;
            [name, none(), none(), ended(other).to_owned(), none(), none(), none(), none(), cpu, resident]
        }
    }
}

fn ended(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Compiled(_) => "compiled",
        Outcome::TooLarge(_) => "too large",
        Outcome::Refused(_) => "refused",
        Outcome::Died(_) => "died",
        Outcome::TimedOut => "timed out",
    }
}

/// Such as `12 all-reduce, 4 all-gather`.
fn collectives(report: &Report) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for talk in &report.collectives {
        match counts.last_mut().filter(|(kind, _)| *kind == talk.kind) {
            Some((_, count)) => *count += talk.count,
            None => counts.push((&talk.kind, talk.count)),
        }
    }
    match counts.is_empty() {
        true => "none".to_owned(),
        false => counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", "),
    }
}

fn said(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::TooLarge(message) | Outcome::Refused(message) | Outcome::Died(message) => {
            // The compiler's report of what it allocated runs over pages; its first lines say what is wrong.
            let end = message.char_indices().nth(1500).map_or(message.len(), |(at, _)| at);
            Some(&message[..end])
        }
        Outcome::Compiled(_) | Outcome::TimedOut => None,
    }
}
