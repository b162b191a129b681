use super::{CollectiveKind, HloModule};
use crate::wire::Writer;

const F32: u64 = 11;
const BF16: u64 = 16;

fn shape(dtype: u64, dims: &[u64], space: u64) -> Writer {
    let layout = Writer::default().varint(8, space);
    Writer::default().varint(2, dtype).packed(3, dims.iter().copied()).message(5, layout)
}

fn tuple(members: Vec<Writer>) -> Writer {
    members.into_iter().fold(Writer::default().varint(2, 13), |tuple, member| tuple.message(4, member))
}

fn instruction(id: u64, opcode: &str, shape: Writer, calls: &[u64], config: &str) -> Writer {
    Writer::default()
        .bytes(1, format!("{opcode}.{id}").as_bytes())
        .bytes(2, opcode.as_bytes())
        .message(3, shape)
        .message(7, Writer::default().bytes(2, b"layers.3"))
        .varint(35, id)
        .packed(38, calls.iter().copied())
        .bytes(43, config.as_bytes())
}

fn computation(id: u64, instructions: Vec<Writer>) -> Writer {
    let named = Writer::default().bytes(1, format!("c{id}").as_bytes()).varint(5, id);
    instructions.into_iter().fold(named, |computation, each| computation.message(2, each))
}

fn operands(instruction: Writer, operands: &[u64]) -> Writer {
    instruction.packed(36, operands.iter().copied())
}

/// A loop of six turns over a body that talks in two halves, beside an asynchronous reduce-scatter and a loop whose turns
/// only its condition tells.
fn module() -> HloModule {
    let small = || shape(F32, &[4], 0);
    let body = vec![
        instruction(
            1,
            "all-gather-start",
            tuple(vec![shape(BF16, &[8, 4], 0), shape(BF16, &[8, 16], 0)]),
            &[],
            "",
        ),
        instruction(2, "all-gather-done", shape(BF16, &[8, 16], 0), &[], ""),
        instruction(3, "copy", shape(F32, &[1000, 10], 0), &[], ""),
    ];
    let wrapped = vec![instruction(4, "reduce-scatter", shape(F32, &[2, 4], 0), &[], "")];
    let moved = |to, from| tuple(vec![shape(F32, &[1000, 10], to), shape(F32, &[1000, 10], from), small()]);
    let entry = vec![
        instruction(5, "while", small(), &[1], r#"{"known_trip_count":{"n":"6"}}"#),
        instruction(6, "async-start", small(), &[2], ""),
        instruction(7, "async-done", small(), &[2], ""),
        instruction(8, "copy-start", moved(1, 0), &[], ""),
        instruction(9, "copy-start", moved(0, 0), &[], ""),
        instruction(10, "copy", small(), &[], ""),
        instruction(15, "while", small(), &[6, 5], ""),
    ];
    let counted = vec![
        instruction(12, "get-tuple-element", small(), &[], ""),
        instruction(13, "constant", small(), &[], "").message(8, Writer::default().packed(4, [5])),
        operands(instruction(14, "compare", small(), &[], ""), &[12, 13]),
    ];
    let unreached = vec![instruction(11, "all-reduce", small(), &[], "")];
    let permuted = vec![instruction(16, "collective-permute", small(), &[], "")];
    let bytes = [body, wrapped, entry, unreached, counted, permuted]
        .into_iter()
        .zip(1..)
        .map(|(instructions, id)| computation(id, instructions))
        .fold(Writer::default(), |module, computation| module.message(3, computation))
        .varint(6, 3)
        .finish();
    let with_config = Writer::default().bytes(1, &bytes).finish();
    HloModule::parse("hlo_with_config", &with_config).unwrap()
}

#[test]
fn collectives_count_once_and_as_often_as_their_loop_turns() {
    let found = module().collectives();
    let told: Vec<_> = found.iter().map(|each| (each.kind, each.shape.to_string(), each.runs)).collect();
    let wanted = [
        (CollectiveKind::AllGather, "8x16xbf16".to_owned(), 6),
        (CollectiveKind::ReduceScatter, "2x4xf32".to_owned(), 1),
        (CollectiveKind::CollectivePermute, "4xf32".to_owned(), 5),
    ];
    assert_eq!(told, wanted);
    assert_eq!(found[0].source, "layers.3");
}

#[test]
fn copies_are_those_within_main_memory() {
    let copies = module().copies(40_000);
    let told: Vec<_> = copies.iter().map(|each| (each.shape.to_string(), each.entry, each.runs)).collect();
    assert_eq!(told, [("1000x10xf32".to_owned(), false, 6), ("1000x10xf32".to_owned(), true, 1)]);
}

#[test]
fn another_format_or_a_cut_module_is_no_module() {
    assert!(HloModule::parse("stablehlo", b"").is_none());
    assert!(HloModule::parse("hlo", &[0x1a, 0x05, 0x00]).is_none());
}
