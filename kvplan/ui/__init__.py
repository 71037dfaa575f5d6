"""The pages: layout and words. Nothing but this package imports streamlit, and nothing here computes a number."""
