//! The only room with unsafe: client, devices, buffers, programs, events, over any PJRT plugin.
