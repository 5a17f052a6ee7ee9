"""The sandbox's compiler: a tree laid out as Visual Studio's; the slot for the user's own MSVC."""
