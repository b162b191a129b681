use std::collections::BTreeMap;

use super::{Buffer, Copy, Part, Placement, Unplaceable, plan};
use crate::layout::Layout;
use crate::segment::Projection;

const LAYOUT: Layout = Layout {
    latent_layers: 2,
    latent_width: 3,
    recurrent_layers: 2,
    heads: 8,
    key_dim: 3,
    value_dim: 2,
    tail_rows: 3,
    tail_width: 24,
    index_dim: 2,
    index_pool: 4,
    hidden: 5,
    vocabulary: 10,
    page_tokens: 16,
};
/// Ends inside a page and a pool, whatever their lengths.
const STATE_POS: u32 = 205;

/// Every buffer of a placement, each number of the state another one, and the same wherever it lies.
fn place(layout: &Layout, placement: &Placement) -> BTreeMap<Buffer, Vec<u32>> {
    let mut buffers = BTreeMap::new();
    let mut base = 0;
    let mut part =
        |part: Part, layers: u32, units: u32, width: u32, cut: &dyn Fn(u32, u32, u32) -> (u32, u32, u32)| {
            for layer in 0..layers {
                for unit in 0..units {
                    for channel in 0..width {
                        base += 1;
                        for shard in 0..placement.tensor_parallel {
                            let (page, owner, at) = cut(unit, channel, shard);
                            if owner == shard {
                                let buffer: &mut Vec<u32> =
                                    buffers.entry(Buffer { part, layer, shard, page }).or_default();
                                let need = (at + 1) as usize;
                                buffer.resize(buffer.len().max(need), 0);
                                buffer[at as usize] = base;
                            }
                        }
                    }
                }
            }
        };
    let Placement { page_tokens, tensor_parallel } = *placement;
    let paged = move |page: u32, width: u32| {
        move |unit: u32, channel: u32, shard: u32| (unit / page, shard, unit % page * width + channel)
    };
    part(
        Part::Latents,
        layout.latent_layers,
        STATE_POS,
        layout.latent_width,
        &paged(page_tokens, layout.latent_width),
    );
    let pools = STATE_POS / layout.index_pool;
    let pool_page = page_tokens / layout.index_pool;
    part(Part::IndexKeys, layout.latent_layers, pools, layout.index_dim, &paged(pool_page, layout.index_dim));
    let open = layout.index_pool * 2 * layout.index_dim;
    part(Part::IndexTail, layout.latent_layers, 1, open, &paged(1, open));
    part(Part::Hidden, 1, 1, layout.hidden, &paged(1, layout.hidden));
    let share = layout.heads / tensor_parallel;
    let head = layout.key_dim * layout.value_dim;
    part(Part::Recurrent, layout.recurrent_layers, layout.heads, head, &|unit, channel, _| {
        (0, unit / share, unit % share * head + channel)
    });
    let columns = layout.tail_width / tensor_parallel;
    for which in [Projection::Query, Projection::Key, Projection::Value] {
        part(
            Part::Tail(which),
            layout.recurrent_layers,
            layout.tail_rows,
            layout.tail_width,
            &|row, channel, _| (0, channel / columns, row * columns + channel % columns),
        );
    }
    buffers
}

fn carry_out(copies: &[Copy], source: &BTreeMap<Buffer, Vec<u32>>, sink: &mut BTreeMap<Buffer, Vec<u32>>) {
    for copy in copies {
        for row in 0..u64::from(copy.rows) {
            let span = |region: &super::Region| {
                let start = ((region.offset + row * region.stride) / 4) as usize;
                start..start + (copy.row_bytes / 4) as usize
            };
            let numbers = source[&copy.from.buffer][span(&copy.from)].to_vec();
            let target = &mut sink.get_mut(&copy.to.buffer).unwrap()[span(&copy.to)];
            assert!(target.iter().all(|&number| number == 0), "written twice: {copy:?}");
            target.copy_from_slice(&numbers);
        }
    }
}

#[test]
fn every_number_lands_in_its_place_between_all_page_lengths_and_shardings() {
    let placements: Vec<Placement> = [16, 48, 64]
        .into_iter()
        .flat_map(|page_tokens| [1, 2, 4].map(|tensor_parallel| Placement { page_tokens, tensor_parallel }))
        .collect();
    for from in &placements {
        let source = place(&LAYOUT, from);
        for to in &placements {
            let whole = place(&LAYOUT, to);
            let mut sink: BTreeMap<_, _> =
                whole.iter().map(|(buffer, numbers)| (*buffer, vec![0; numbers.len()])).collect();
            carry_out(&plan(&LAYOUT, STATE_POS, from, to).unwrap(), &source, &mut sink);
            assert_eq!(sink, whole, "{from:?} to {to:?}");
        }
    }
}

#[test]
fn a_placement_that_does_not_fit_is_refused_by_its_field() {
    let fits = Placement { page_tokens: 16, tensor_parallel: 2 };
    let refused = |to: Placement| plan(&LAYOUT, STATE_POS, &fits, &to).unwrap_err();
    let uneven = Unplaceable::Uneven { field: "heads", have: 8, by: 3 };
    assert_eq!(refused(Placement { tensor_parallel: 3, ..fits }), uneven);
    assert_eq!(refused(Placement { tensor_parallel: 0, ..fits }), Unplaceable::Zero("tensor_parallel"));
    let pages = Unplaceable::Pages { page_tokens: 18, index_pool: 4 };
    assert_eq!(refused(Placement { page_tokens: 18, ..fits }), pages);
}
