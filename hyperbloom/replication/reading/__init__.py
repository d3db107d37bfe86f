"""What is read of a feed for others: ranges, slices, answers that many share, digests of ranges."""
