use bytes::Bytes;

use super::{Booked, Books};

#[test]
fn bookings_add_up_and_leave_nothing_behind() {
    let books = Books::default();
    let worker = Bytes::from_static(b"w");
    let mut first = books.book(worker.clone(), Booked { prompt_tokens: 70, ..Booked::default() });
    let second = books.book(worker.clone(), Booked { prompt_tokens: 30, slots: 1, pages: 4 });
    assert_eq!(books.lock()[&worker], Booked { prompt_tokens: 100, slots: 1, pages: 4 });
    first.change(Booked { prompt_tokens: 6, ..Booked::default() });
    drop(second);
    assert_eq!(books.lock()[&worker], Booked { prompt_tokens: 6, slots: 0, pages: 0 });
    drop(first);
    assert!(books.lock().is_empty());
}
