//! What programs hold by a pointer: objects of ours with the struct in them that the headers declare.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::Errno;

use super::{Fail, Outcome, Ptr};

/// The part of an object that programs see and may write.
#[repr(transparent)]
pub(crate) struct Shared<T>(UnsafeCell<T>);

// SAFETY: a program's threads share it by its pointer whatever we say; here its fields are only read and
// written by value, by `Field`.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// All zero but for what `set` writes. For structs for which that is a value: of numbers, pointers,
    /// mutexes, and functions that may be absent.
    pub(crate) fn zeroed(set: impl FnOnce(&mut T)) -> Self
    where
        T: Zeroed,
    {
        let mut value = zeroed();
        set(&mut value);
        Self::new(value)
    }

    /// For [`field!`].
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.get()
    }
}

/// A field of a [`Shared`], which is read and written by itself: no reference to the struct exists while the
/// program, or another thread of ours, writes other fields.
pub(crate) struct Field<'a, T> {
    place: *mut T,
    object: PhantomData<&'a ()>,
}

impl<'a, T> Field<'a, T> {
    /// # Safety
    /// `place` is a field of `shared`.
    pub(crate) unsafe fn of<S>(_shared: &'a Shared<S>, place: *mut T) -> Self {
        Self {
            place,
            object: PhantomData,
        }
    }

    pub(crate) fn get(self) -> T
    where
        T: Copy,
    {
        // SAFETY: a field of a struct that lives. Who writes it is a call of the program's on this object, or
        // holds a lock of the object's; programs make no such calls at one time for one object.
        unsafe { self.place.read() }
    }

    pub(crate) fn set(self, value: T) {
        // SAFETY: as for `get`.
        unsafe { self.place.write(value) };
    }

    /// Where it is, for a program that reads there.
    pub(crate) fn place(self) -> Ptr<T> {
        Ptr(self.place)
    }
}

/// Numbers that the session's thread writes too.
impl Field<'_, c_int> {
    pub(crate) fn store(self, value: c_int) {
        // SAFETY: an aligned field of a struct that lives as long as this. We reach it in no other way; a
        // program reads it as the plain `int` that it is in the headers.
        unsafe { AtomicI32::from_ptr(self.place) }.store(value, Ordering::Relaxed);
    }
}

/// A [`Field`]: `field!(self.abi, route.addr)`.
macro_rules! field {
    ($shared:expr, $($name:ident).+) => {{
        let shared = &$shared;
        // SAFETY: the place is in the struct, and no reference is made to the struct.
        #[allow(unsafe_code)]
        unsafe {
            crate::ffi::Field::of(shared, &raw mut (*shared.as_ptr()).$($name).+)
        }
    }};
}
pub(crate) use field;

/// Structs whose bytes may all be zero.
///
/// # Safety
///
/// Zero bytes are a value of the type.
pub(crate) unsafe trait Zeroed {}

macro_rules! zeroable {
    ($($type:ty),* $(,)?) => {
        $(
            // SAFETY: numbers, pointers, mutexes and absent functions only.
            #[allow(unsafe_code)]
            unsafe impl crate::ffi::Zeroed for $type {}
        )*
    };
}
pub(crate) use zeroable;

pub(crate) fn zeroed<T: Zeroed>() -> T {
    // SAFETY: what `Zeroed` says.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// What a program holds by a pointer to the struct that the headers declare.
///
/// # Safety
///
/// A `Shared<Abi>`, or one that begins with an `Abi`, is its part from [`Self::OFFSET`] on.
pub(crate) unsafe trait Object: Sized {
    type Abi;

    /// Where the struct begins in the object.
    const OFFSET: usize;

    /// Gives the program a share of it; [`Ptr::take_back`] ends that.
    fn hand_out(self: Arc<Self>) -> Ptr<Self::Abi> {
        let object = Arc::into_raw(self).cast_mut();
        Ptr(object.wrapping_byte_add(Self::OFFSET).cast())
    }

    /// The pointer by which the program holds it, without a share.
    fn abi_ptr(&self) -> Ptr<Self::Abi> {
        let object = std::ptr::from_ref(self).cast_mut();
        Ptr(object.wrapping_byte_add(Self::OFFSET).cast())
    }
}

/// Says where in an object the struct is that programs see.
macro_rules! object {
    ($type:ty: $abi:ty => $offset:expr) => {
        // SAFETY: the offset is that of the field that is the struct.
        #[allow(unsafe_code)]
        unsafe impl crate::ffi::Object for $type {
            type Abi = $abi;
            const OFFSET: usize = $offset;
        }
    };
}
pub(crate) use object;

impl<T> Ptr<T> {
    /// The object of which this is the struct.
    pub(crate) fn object<'a, O: Object<Abi = T>>(self) -> Outcome<&'a O> {
        match self.as_non_null() {
            // SAFETY: a struct that `hand_out` gave, and not destroyed (see [`super`]).
            Some(at) => Ok(unsafe { at.byte_sub(O::OFFSET).cast().as_ref() }),
            None => Err(Fail::of(Errno::INVAL, "a null pointer")),
        }
    }

    /// The same, to keep.
    pub(crate) fn share<O: Object<Abi = T>>(self) -> Outcome<Arc<O>> {
        let object: *const O = self.object::<O>()?;
        // SAFETY: `hand_out` made the pointer out of an `Arc`, of which the program still has its share.
        Ok(unsafe {
            Arc::increment_strong_count(object);
            Arc::from_raw(object)
        })
    }

    /// The program's share, which it gives back: it does not use the pointer again.
    pub(crate) fn take_back<O: Object<Abi = T>>(self) -> Outcome<Arc<O>> {
        let object: *const O = self.object::<O>()?;
        // SAFETY: as for `share`, and the program's share is given up.
        Ok(unsafe { Arc::from_raw(object) })
    }
}
