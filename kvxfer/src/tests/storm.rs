//! Faults by the hundred thousand on transfers between the pure sessions. Every one ends in the right state, committed
//! once, or in a typed error and no commit; and the counters say what happened.

use std::collections::BTreeMap;

use super::pair::{Fate, Pair, Passing};
use super::refusals::{greeting, misgreetings};
use super::state::{LAYOUT, STATE_POS, State, Units};
use crate::segment::{SEGMENT_BYTES, Segment, SegmentId};
use crate::ticket::Incarnation;
use crate::verdict::Verdict;

/// Injected in all; a development build does a part of it.
const FAULTS: u64 = if cfg!(debug_assertions) { 4_000 } else { 100_000 };

/// SplitMix64: a run is its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % sides as u64) as usize
    }
}

/// What happens to one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hit {
    Flip,
    FlipPayload,
    Truncate,
    Insert,
    Lose,
    Double,
    /// It changes places with the next one on whatever link.
    Reorder,
    /// Its payload is the one of an earlier segment.
    StalePayload,
    /// An earlier packet comes in its place, or after it.
    ReplayInPlace,
    Replay,
    /// A packet of another attempt, or of another process's ticket.
    ForeignAttempt,
    ForeignIncarnation,
    Cut,
    Silence,
}

const HITS: [Hit; 14] = [
    Hit::Flip,
    Hit::FlipPayload,
    Hit::Truncate,
    Hit::Insert,
    Hit::Lose,
    Hit::Double,
    Hit::Reorder,
    Hit::StalePayload,
    Hit::ReplayInPlace,
    Hit::Replay,
    Hit::ForeignAttempt,
    Hit::ForeignIncarnation,
    Hit::Cut,
    Hit::Silence,
];

/// What is wrong with what the source gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Misgiven {
    Twice,
    LeftOut,
    Overlapping,
    OutsideTheState,
    WrongLength,
}

const MISGIVEN: [Misgiven; 5] = [
    Misgiven::Twice,
    Misgiven::LeftOut,
    Misgiven::Overlapping,
    Misgiven::OutsideTheState,
    Misgiven::WrongLength,
];

fn misgive(how: Misgiven, segments: &mut Vec<Segment>, dice: &mut Dice) {
    let at = dice.roll(segments.len());
    match how {
        Misgiven::Twice => segments.insert(at, segments[at].clone()),
        Misgiven::LeftOut => drop(segments.remove(at)),
        Misgiven::Overlapping => {
            let latents = segments.iter().find(|s| matches!(s.id, SegmentId::Latents { tokens: 2.., .. }));
            let Some(Segment { id: SegmentId::Latents { layer, first_token, .. }, payload }) = latents else {
                return segments.truncate(at);
            };
            let id = SegmentId::Latents { layer: *layer, first_token: *first_token, tokens: 1 };
            let payload = payload.slice(..LAYOUT.latent_width as usize * 4);
            segments.push(Segment { id, payload });
        }
        Misgiven::OutsideTheState => {
            let id = SegmentId::Latents { layer: 0, first_token: STATE_POS, tokens: 1 };
            segments[at] = Segment { id, payload: vec![0; LAYOUT.latent_width as usize * 4].into() };
        }
        Misgiven::WrongLength => {
            let short = segments[at].payload.len() - 4;
            // the sampling state has no fixed length: its reader refuses it
            if segments[at].id == SegmentId::Sampling {
                segments.remove(at);
            } else {
                segments[at].payload.truncate(short);
            }
        }
    }
}

struct Storm {
    dice: Dice,
    hits: Vec<(bool, usize, Hit)>,
    held: Option<Vec<u8>>,
    past: Vec<Vec<u8>>,
    payloads: Vec<Vec<u8>>,
    dealt: BTreeMap<String, u64>,
}

impl Storm {
    fn deal(&mut self, foreign: &[Vec<Vec<u8>>; 2], passing: &Passing) -> Fate {
        let packet = passing.bytes.to_vec();
        let hit = self.hits.iter().position(|hit| (hit.0, hit.1) == (passing.to_receiver, passing.number));
        let fate = match hit.map(|at| self.hits.swap_remove(at).2) {
            Some(hit) => self.hit(hit, packet.clone(), passing, foreign),
            None => Fate::Packets(vec![packet.clone()]),
        };
        if passing.to_receiver {
            self.past.push(packet);
            self.payloads.extend(Some(passing.payload()).filter(|payload| !payload.is_empty()));
        }
        match fate {
            Fate::Packets(mut packets) => {
                packets.extend(if packets.is_empty() { None } else { self.held.take() });
                Fate::Packets(packets)
            }
            fate => fate,
        }
    }

    /// What happens to a payload that lies in memory.
    fn hit_memory(&mut self, hit: Hit, passing: &Passing) -> Option<Fate> {
        passing.memory.as_ref()?;
        let (mut payload, dice) = (passing.payload(), &mut self.dice);
        let length = payload.len();
        match hit {
            Hit::FlipPayload => payload[dice.roll(length)] ^= 1 << dice.roll(8),
            Hit::StalePayload if !self.payloads.is_empty() => {
                let old = &self.payloads[dice.roll(self.payloads.len())];
                let some = old.len().min(length);
                payload[..some].copy_from_slice(&old[..some]);
            }
            Hit::Truncate => {
                let from = dice.roll(length);
                payload[from..].fill(0);
            }
            _ => return None,
        }
        Some(passing.with_payload(&payload))
    }

    fn hit(&mut self, hit: Hit, mut packet: Vec<u8>, passing: &Passing, foreign: &[Vec<Vec<u8>>; 2]) -> Fate {
        if let Some(fate) = self.hit_memory(hit, passing) {
            *self.dealt.entry(format!("{hit:?} in memory")).or_default() += 1;
            return fate;
        }
        *self.dealt.entry(format!("{hit:?}")).or_default() += 1;
        let dice = &mut self.dice;
        let earlier = |dice: &mut Dice, past: &[Vec<u8>]| {
            if past.is_empty() { vec![0; 12] } else { past[dice.roll(past.len())].clone() }
        };
        Fate::Packets(match hit {
            Hit::Flip => {
                let at = dice.roll(packet.len());
                packet[at] ^= 1 << dice.roll(8);
                vec![packet]
            }
            Hit::FlipPayload => {
                let at = packet.len() - 1 - dice.roll(packet.len().min(24));
                packet[at] ^= 1 << dice.roll(8);
                vec![packet]
            }
            Hit::Truncate => {
                packet.truncate(dice.roll(packet.len()));
                vec![packet]
            }
            Hit::Insert => {
                let at = dice.roll(packet.len());
                packet.insert(at, dice.roll(256) as u8);
                vec![packet]
            }
            Hit::Lose => vec![],
            Hit::Double => vec![packet.clone(), packet],
            Hit::Reorder => {
                self.held = Some(packet);
                vec![]
            }
            Hit::StalePayload => {
                let old = earlier(dice, &self.past);
                let length = old.len().min(packet.len()).saturating_sub(70);
                let (to, from) = (packet.len() - length, old.len() - length);
                packet[to..].copy_from_slice(&old[from..]);
                vec![packet]
            }
            Hit::ReplayInPlace => vec![earlier(dice, &self.past)],
            Hit::Replay => vec![packet, earlier(dice, &self.past)],
            Hit::ForeignAttempt | Hit::ForeignIncarnation => {
                let from = &foreign[usize::from(hit == Hit::ForeignIncarnation)];
                vec![from[dice.roll(from.len())].clone()]
            }
            Hit::Cut => return Fate::Cut,
            Hit::Silence => return Fate::Silence,
        })
    }
}

/// Everything that crosses to the receiver in a transfer of the same state under other incarnations.
fn recorded(receiver: u8, sender: u8) -> Vec<Vec<u8>> {
    let mut pair = Pair::between(Incarnation([receiver; 16]), Incarnation([sender; 16]), SEGMENT_BYTES, 1);
    let mut packets = Vec::new();
    pair.run(State::new(LAYOUT, STATE_POS).segments(8), &mut |passing: Passing| {
        if passing.to_receiver {
            packets.push(passing.bytes.to_vec());
        }
        Fate::whole(&passing)
    });
    packets
}

#[test]
fn no_fault_of_a_hundred_thousand_passes_undetected() {
    let seed = std::env::var("TANDEM_STORM_SEED").ok().and_then(|seed| seed.parse().ok());
    let whole = Units::of(&State::new(LAYOUT, STATE_POS).segments(1));
    let cuts = [3, 8, 37].map(|chunk| State::new(LAYOUT, STATE_POS).segments(chunk));
    let foreign = [recorded(4, 7), recorded(5, 6)];
    let (mut dealt, mut counted, mut ends) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut injected = 0;
    for run in seed.unwrap_or(1).. {
        let faults = one(run, &whole, &cuts, &foreign, &mut dealt, &mut counted, &mut ends);
        injected += faults;
        if injected >= FAULTS || seed.is_some() {
            break;
        }
    }
    println!("injected {injected}: {dealt:?}\ncounted {counted:?}\nended {ends:?}");
}

type Counts<K> = BTreeMap<K, u64>;

/// One transfer of this seed; gives out the faults it went through.
fn one(
    seed: u64,
    whole: &Units,
    cuts: &[Vec<Segment>],
    foreign: &[Vec<Vec<u8>>; 2],
    dealt: &mut Counts<String>,
    counted: &mut Counts<&'static str>,
    ends: &mut Counts<&'static str>,
) -> u64 {
    let mut dice = Dice(seed);
    let before: u64 = dealt.values().sum();
    let mut segments = cuts[dice.roll(cuts.len())].clone();
    let packets = segments.len() + 3;
    let mut pair = Pair::new(SEGMENT_BYTES, 1 + dice.roll(3) as u16);
    if dice.roll(2) == 0 {
        pair = pair.lending();
    }
    let hits = (0..1 + dice.roll(5))
        .map(|_| (dice.roll(4) > 0, dice.roll(packets), HITS[dice.roll(HITS.len())]))
        .collect();
    let mut misgiven = false;
    if dice.roll(8) == 0 {
        let how = MISGIVEN[dice.roll(MISGIVEN.len())];
        *dealt.entry(format!("{how:?}")).or_default() += 1;
        misgive(how, &mut segments, &mut dice);
        misgiven = true;
    }
    if dice.roll(4) == 0 {
        let (how, spoil, secret) = misgreetings()[dice.roll(misgreetings().len())];
        *dealt.entry(how.to_owned()).or_default() += 1;
        let refused = greeting(spoil, &secret()).expect_err(how);
        *counted.entry(refused.kind()).or_default() += 1;
    }
    let mut storm =
        Storm { dice, hits, held: None, past: vec![], payloads: vec![], dealt: std::mem::take(dealt) };
    pair.run(segments, &mut |passing: Passing| storm.deal(foreign, &passing));
    *dealt = storm.dealt;

    let say = format!("seed {seed}: {:?} {:?} {:?}", pair.verdict, pair.received, pair.faults);
    assert!(pair.sunk.within(whole), "wrong bytes at the sink, {say}");
    assert!(pair.commits <= 1, "{say}");
    assert_eq!(pair.committed(), matches!(pair.received, Some(Ok(_))), "{say}");
    if pair.committed() {
        assert!(!misgiven && pair.sunk == *whole, "half a state committed, {say}");
    }
    let end = match pair.verdict {
        Some(Verdict::Held(_)) => "held",
        Some(Verdict::Revoked(_)) => "revoked",
        Some(Verdict::Unknown(_)) | None => "unknown",
    };
    assert!(end == "unknown" || (end == "held") == pair.committed(), "the sender was told a lie, {say}");
    assert!(end == "held" || pair.faults.values().sum::<u32>() > 0, "nothing counted, {say}");
    assert_eq!(pair.staged(), 0, "{say}");
    *ends.entry(end).or_default() += 1;
    for (kind, count) in &pair.faults {
        *counted.entry(kind).or_default() += u64::from(*count);
    }
    dealt.values().sum::<u64>() - before
}
