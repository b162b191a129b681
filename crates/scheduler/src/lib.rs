//! What the next device step should contain.
